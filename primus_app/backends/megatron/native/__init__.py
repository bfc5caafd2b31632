"""backend.native on Megatron: fields of its configurations, checked by name, type and effect before the launch; imports no megatron."""
