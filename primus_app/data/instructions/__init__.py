"""Instructions and their responses as a corpus: which conversations, how a chat template writes them, and what of them is learnt."""
