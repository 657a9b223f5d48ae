"""Derived ResourceClaimTemplates: one per shape, made from the annotation the webhook wrote."""
