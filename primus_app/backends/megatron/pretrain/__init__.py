"""Megatron-LM's own trainer, ``megatron.training.pretrain``, told by its command line arguments what our configuration says."""
