"""Sources: where rows come from, and how a position in them is named. No Spark."""
