"""Pure arithmetic on a configuration: what it comes to, and what would certainly fail."""
