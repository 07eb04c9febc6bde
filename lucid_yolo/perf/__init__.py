"""Performance flags: rules, resolver, plan."""
