"""What runs in the contenders' own processes: one module a kind of engine, and the orders that they take."""
