"""Whose turn it is: clients take turns, and so do the jobs of one client."""

from collections import deque

from gmaflow.serving.jobs import Job


class Turns:
    """Jobs that wait, in a circle of clients.

    A job is handed out for one task at a time and comes back at the end of its client's line, so a
    long clip holds up neither others nor its own client's single pairs.
    """

    def __init__(self) -> None:
        self._lines: deque[deque[Job]] = deque()

    def add(self, job: Job) -> None:
        """Put a job at the end of its client's line, and a new client at the end of the circle."""
        for line in self._lines:
            if line[0].client == job.client:
                line.append(job)
                return
        self._lines.append(deque([job]))

    def take(self) -> Job | None:
        """Hand out the next job, and move its client to the end of the circle."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        job = line.popleft()
        if line:
            self._lines.append(line)
        return job

    def remove(self, job: Job) -> bool:
        """Take a job out; tells whether it was there."""
        for line in self._lines:
            if job in line:
                line.remove(job)
                if not line:
                    self._lines.remove(line)
                return True
        return False

    def order(self) -> list[Job]:
        """Return the jobs in the order of their next turns."""
        lines = [tuple(line) for line in self._lines]
        longest = max(map(len, lines), default=0)
        return [line[i] for i in range(longest) for line in lines if i < len(line)]

    def __len__(self) -> int:
        return sum(map(len, self._lines))
