"""Programs that build and prove dray. Nothing of dray imports them, and no image holds them."""
