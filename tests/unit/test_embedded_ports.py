"""Ports of embedded servers: also those beside them are none that the system gives to clients."""

from __future__ import annotations

from onceonly_proof.embedded.ports import free_ports


def test_a_port_and_the_one_beside_it_are_below_those_of_clients() -> None:
    for port in free_ports(50, beside=10_000):
        assert 20_000 <= port < 22_768
    assert all(20_000 <= port < 30_000 for port in free_ports(50))
