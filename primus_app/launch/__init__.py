"""Starting ranks and staying with them: launchers, the node agent, the rank entry."""
