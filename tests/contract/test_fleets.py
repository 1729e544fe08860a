"""What a database promises to nodes that take runs from it, in memory and in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

from tests.postgres import new_database, new_database_of_other_version
from tests.unit.depot.postgres.functions import PostgresFunctions

from bartack.depot.postgres._database import Database
from bartack.testing.fleet import FleetContract, FleetFunctions, MemoryFleet


class TestMemoryFleet(FleetContract):
    def make_fleet(self) -> FleetFunctions:
        return MemoryFleet()


class TestPostgres(FleetContract):
    new_database: Callable[[], str] = staticmethod(new_database)
    database: Database

    def make_fleet(self) -> FleetFunctions:
        self.database = Database(self.new_database())
        return PostgresFunctions(self.database)

    def teardown_method(self) -> None:
        self.database.close()


class TestPostgresOfOtherVersion(TestPostgres):
    new_database = staticmethod(new_database_of_other_version)
