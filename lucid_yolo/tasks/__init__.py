"""What a task is: head, losses, decoding, metric, drawing."""
