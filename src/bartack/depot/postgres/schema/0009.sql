-- The deaths of nodes, apart from those of the process of a run alone; and what is executed of a run before its hub runs.
--
--   begun        something of the run is executed, though no hub runs it yet: a command that prepares its workspace or environment
--   bury         as before; "deaths" decides, and not "strikes", which counts the ends of the process alone, too
--   note_owner   as before; what clears the strikes clears the deaths

ALTER TABLE bartack.owner
  ADD deaths smallint NOT NULL DEFAULT 0, -- how often in a row its node has died while it was executed; they are among the strikes
  ADD begun int;                          -- the fence of the ownership that executes something of it

CREATE FUNCTION bartack.begun(its_run bigint, its_fence int) RETURNS bool LANGUAGE sql SET search_path = pg_catalog AS $$
  UPDATE bartack.owner o SET begun = o.fence FROM bartack.node n
    WHERE o.run = $1 AND o.fence = $2 AND o.state = 'owned' AND n.id = o.node AND n.role = session_user RETURNING true $$;

CREATE OR REPLACE FUNCTION bartack.bury(ids int[], why text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner WHERE node = ANY (ids) ORDER BY run FOR UPDATE;
  UPDATE bartack.node SET state = 'dead' WHERE id = ANY (ids) AND state IN ('live', 'draining');
  UPDATE bartack.owner o SET
    state = CASE WHEN o.pool IS NULL THEN 'resting' WHEN NOT x.counts THEN o.before WHEN o.deaths < 2 THEN 'queued' ELSE 'held' END,
    strikes = CASE WHEN x.counts THEN o.strikes + 1 ELSE o.strikes END,
    deaths = CASE WHEN x.counts THEN o.deaths + 1 ELSE o.deaths END,
    reason = CASE WHEN x.counts AND o.deaths >= 2
      THEN 'its node died for the third time, and no step was finished in between' ELSE why END,
    fence = o.fence + 1, node = NULL, alive = false,
    seen = CASE WHEN o.alive THEN n.until - n.lease ELSE o.seen END
  FROM bartack.node n, (SELECT i.run, i.pool IS NOT NULL AND (i.alive OR coalesce(i.begun = i.fence, false)) AS counts
    FROM bartack.owner i WHERE i.node = ANY (ids)) x
  WHERE n.id = o.node AND n.id = ANY (ids) AND x.run = o.run;
  PERFORM pg_notify('bartack_runs', '');
END $$;

CREATE OR REPLACE FUNCTION bartack.note_owner() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  NEW.deaths := least(NEW.deaths, NEW.strikes);
  IF NEW.state = 'resting' AND OLD.state = 'owned' AND NEW.pool IS NOT NULL AND bartack.has_requests(NEW.run) THEN
    NEW.state := 'queued';
    NEW.due := NULL;
    PERFORM pg_notify('bartack_runs', '');
  END IF;
  IF NEW.state <> OLD.state OR NEW.alive <> OLD.alive THEN PERFORM pg_notify('bartack_run_' || NEW.run, ''); END IF;
  RETURN NEW;
END $$;
