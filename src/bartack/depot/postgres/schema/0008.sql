-- Runs that begin at a time.
--
--   enqueue   as before; a time keeps nodes from taking the run before it

CREATE FUNCTION bartack.enqueue(its_run bigint, its_pool text, its_priority int, its_needs text[], begins timestamptz)
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE became text := bartack.enqueue(its_run, its_pool, its_priority, its_needs);
BEGIN
  -- It waits for a node from then on only, which is what "queued" says.
  IF became = 'queued' AND begins > clock_timestamp() THEN
    UPDATE bartack.owner SET due = begins, queued = begins WHERE run = its_run;
  END IF;
  RETURN became;
END $$;
