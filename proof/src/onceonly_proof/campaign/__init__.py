"""The campaign behind ``onceonly verify``: seeded workloads under seeded faults, audited from outside."""
