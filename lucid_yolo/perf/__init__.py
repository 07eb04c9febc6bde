"""The run plan: what a run asks for, what it gets on this machine, and why the two differ."""
