"""Primus' experiments for Megatron: Megatron's arguments by name, told in our settings."""
