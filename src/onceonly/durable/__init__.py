"""Files and names that survive a loss of power, and what a small durable file looks like. Any process."""
