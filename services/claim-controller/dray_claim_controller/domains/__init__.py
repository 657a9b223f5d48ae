"""Scheduling domains: who opens their decision logs, and who reads them as orders."""
