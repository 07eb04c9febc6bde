"""What a task learns of objects beside their boxes and classes: one module a kind of label."""
