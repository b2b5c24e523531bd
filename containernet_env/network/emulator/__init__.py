"""Links and switches inside the project's own link emulator."""
