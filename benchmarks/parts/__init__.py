"""What is measured: one module a kind of measurement, each of which turns a run into figures."""
