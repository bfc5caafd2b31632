"""What is typed and what is answered: arguments, help, verbs, and Hydra's own flags."""
