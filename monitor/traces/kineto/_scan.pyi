Columns = tuple[bytes, ...]

class Scanner:
    def __new__(
        cls, host: list[tuple[bytes, int]], work: list[tuple[bytes, int]], /
    ) -> Scanner: ...
    def scan(
        self, piece: bytes | bytearray | memoryview, /
    ) -> tuple[int, int, Columns, Columns, tuple[list[bytes], ...], bytes, bytes, bytes] | None: ...
    def keep(self) -> None: ...
