"""What the estimate of a cost is made of: ranges, sizes, and the rules for each function."""
