"""Evaluation on one device: result, error and cost as Kubernetes gives them."""
