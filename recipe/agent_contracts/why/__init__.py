"""From a gradient back to the experience that caused it, and forward to what the update did on unseen tasks."""
