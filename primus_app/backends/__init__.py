"""The engines: what each can run, how a Config becomes theirs, and the training on one rank."""
