"""From the command line to one frozen, validated configuration."""
