-- Returns the time.
SELECT {now} AS now
