"""The allocator: decides which node and which devices every waiting pod gets."""
