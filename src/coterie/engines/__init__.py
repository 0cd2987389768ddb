"""Where clients live: a simulation, or a process for each."""
