"""What a database promises to nodes that take runs from it, in memory and in a real PostgreSQL."""

from __future__ import annotations

from tests.postgres import new_database
from tests.unit.depot.postgres.functions import PostgresFunctions

from bartack.depot.postgres._database import Database
from bartack.testing.fleet import FleetContract, FleetFunctions, MemoryFleet


class TestMemoryFleet(FleetContract):
    def make_fleet(self) -> FleetFunctions:
        return MemoryFleet()


class TestPostgres(FleetContract):
    database: Database

    def make_fleet(self) -> FleetFunctions:
        self.database = Database(new_database())
        return PostgresFunctions(self.database)

    def teardown_method(self) -> None:
        self.database.close()
