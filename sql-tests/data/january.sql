-- Flights of January 2013 in the order in which they landed, an hour of landings an epoch.
CREATE EXTERNAL TABLE flights STORED AS PARQUET LOCATION 'sql-tests/data/nyc_january.parquet';

-- Departures an hour and an airport. An hour is final when a flight is seen that departed 6 hours after its end.
CREATE STREAMING TABLE hourly WITH (epoch_by = 'batch') AS
SELECT window.start AS hour, origin, count(*) AS flights, sum(dep_delay) AS delay
FROM STREAM flights WATERMARK dep_ts DELAY OF INTERVAL 6 HOURS
GROUP BY window(dep_ts, '1 hour'), origin;

-- Reads what has arrived; a row for each of the 680 epochs.
REFRESH STREAMING TABLE hourly;

SHOW STREAMING TABLES;

-- What is final: an hour is in the table once, when no row is awaited for it any more.
SELECT * FROM hourly ORDER BY hour, origin LIMIT 5;

-- Where every row went: read = final + still_open + late + no_time.
SELECT sum(input_rows) AS read,
       (SELECT sum(flights) FROM hourly) AS final,
       last_value(open_rows ORDER BY epoch) AS still_open,
       sum(late_rows) AS late,
       sum(null_rows) AS no_time
FROM progress('hourly');

-- Which rows were late: those whose hour had ended by the watermark that the epoch before them left.
SELECT carrier, origin, dest, count(*) AS late, min(arrived - dep_ts) AS landed_after
FROM (SELECT *, dense_rank() OVER (ORDER BY batch) - 1 AS epoch FROM flights) AS arrivals
JOIN (SELECT epoch + 1 AS epoch, CAST(watermark AS TIMESTAMP) AS watermark FROM progress('hourly')) AS marks USING (epoch)
WHERE date_trunc('hour', dep_ts) + INTERVAL '1 hour' <= watermark
GROUP BY carrier, origin, dest
ORDER BY carrier;
