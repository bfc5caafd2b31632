"""What a run will need and how long it will take, said before it starts."""
