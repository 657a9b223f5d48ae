"""Programs that build and prove dray. No part of dray imports them, and no image contains them."""
