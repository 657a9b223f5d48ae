"""One step of a serving replica: it ends reservations, schedules pods and writes the records."""
