-- Requests to a run that come from anywhere, and waking those who wait for a run.
--
--   ask               stores a request once, wakes a run that rests, and notifies the node that owns it
--   settle, withdraw  what became of a request; its process does not wait any more
--   release           as before; a run that was changed by a process that owned it for a moment is queued again
--   beat_fleet        as before; also returns the runs of the node that have open requests
--
-- Channels: bartack_runs (something is queued), bartack_node_<id> ("ask RUN", "watch RUN"), bartack_run_<no> (look at the run).
-- A notification only says that it is time to look: all who listen look without one, too.

CREATE TABLE bartack.request (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id uuid NOT NULL UNIQUE,
  run bigint NOT NULL REFERENCES bartack.run ON DELETE CASCADE,
  asks text COLLATE "C" NOT NULL,
  args bytea NOT NULL,
  value bytea,
  asked_by text NOT NULL DEFAULT session_user,
  client text COLLATE "C" NOT NULL DEFAULT '',
  number int NOT NULL DEFAULT 0,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  late_at timestamptz,
  state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'refused', 'late')),
  answer bytea,
  settled timestamptz);
CREATE INDEX ON bartack.request (run, no) WHERE state = 'open';
CREATE INDEX ON bartack.request (settled) WHERE state <> 'open';

CREATE FUNCTION bartack.has_requests(its_run bigint) RETURNS bool LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
  SELECT EXISTS (SELECT 1 FROM bartack.request q
    WHERE q.run = its_run AND q.state = 'open' AND (q.late_at IS NULL OR q.late_at > clock_timestamp())) $$;

-- However an ownership ends: a run that would rest is queued if there is a request for it. Whoever asks locks the same row first,
-- so one of the two sees the other.
CREATE FUNCTION bartack.note_owner() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF NEW.state = 'resting' AND OLD.state = 'owned' AND NEW.pool IS NOT NULL AND bartack.has_requests(NEW.run) THEN
    NEW.state := 'queued';
    NEW.due := NULL;
    PERFORM pg_notify('bartack_runs', '');
  END IF;
  IF NEW.state <> OLD.state OR NEW.alive <> OLD.alive THEN PERFORM pg_notify('bartack_run_' || NEW.run, ''); END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER note_owner BEFORE UPDATE ON bartack.owner FOR EACH ROW EXECUTE FUNCTION bartack.note_owner();

-- Stores a request, unless it is there already; returns what became of it. A request of another run with this id is none of its own.
CREATE FUNCTION bartack.ask(its_id uuid, its_run bigint, its_asks text, its_args bytea, its_value bytea, its_client text,
  its_number int, late_s float8) RETURNS TABLE (state text, answer bytea) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE mine bartack.owner;
BEGIN
  SELECT * INTO mine FROM bartack.owner o WHERE o.run = its_run FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  INSERT INTO bartack.request (id, run, asks, args, value, client, number, late_at)
    VALUES (its_id, its_run, its_asks, its_args, its_value, its_client, its_number, clock_timestamp() + make_interval(secs => late_s))
    ON CONFLICT (id) DO NOTHING;
  UPDATE bartack.request q SET state = 'late', value = NULL, settled = clock_timestamp()
    WHERE q.id = its_id AND q.state = 'open' AND q.late_at <= clock_timestamp();
  IF mine.state = 'resting' AND mine.pool IS NOT NULL THEN
    IF bartack.has_requests(its_run) THEN
      UPDATE bartack.owner o SET state = 'queued', due = NULL WHERE o.run = its_run;
      PERFORM pg_notify('bartack_runs', '');
    END IF;
  ELSIF mine.state = 'owned' THEN
    PERFORM pg_notify('bartack_node_' || mine.node, 'ask ' || its_run);
  END IF;
  RETURN QUERY SELECT q.state, q.answer FROM bartack.request q WHERE q.id = its_id AND q.run = its_run;
END $$;

-- The owner of a run has an answer; false if the request is not open, or the run has another owner. Answers are kept for a day.
CREATE FUNCTION bartack.settle(its_id uuid, its_run bigint, its_fence int, to_state text, its_answer bytea)
RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
BEGIN
  PERFORM 1 FROM bartack.owner o WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' FOR SHARE;
  IF NOT FOUND THEN RETURN false; END IF;
  UPDATE bartack.request q SET state = to_state, answer = its_answer, value = NULL, settled = clock_timestamp()
    WHERE q.id = its_id AND q.run = its_run AND q.state = 'open';
  IF NOT FOUND THEN RETURN false; END IF;
  DELETE FROM bartack.request q WHERE q.no IN (SELECT r.no FROM bartack.request r
    WHERE r.state <> 'open' AND r.settled < clock_timestamp() - interval '1 day' ORDER BY r.settled LIMIT 10 FOR UPDATE SKIP LOCKED);
  PERFORM pg_notify('bartack_run_' || its_run, '');
  RETURN true;
END $$;

-- The process that asks does not wait for the owner any more. If the owner has begun, the journal has the outcome under this id.
CREATE FUNCTION bartack.withdraw(its_id uuid) RETURNS void LANGUAGE sql SET search_path = pg_catalog AS $$
  DELETE FROM bartack.request WHERE id = its_id AND state = 'open' $$;

CREATE OR REPLACE FUNCTION bartack.release(its_run bigint, its_fence int, to_state text, why text) RETURNS bool LANGUAGE sql
SET search_path = pg_catalog AS $$
  UPDATE bartack.owner o SET fence = o.fence + 1, node = NULL, alive = false, reason = why,
    state = CASE WHEN to_state = 'changed' AND o.pool IS NOT NULL AND o.before = 'resting' THEN 'queued'
      WHEN to_state = 'changed' THEN o.before
      WHEN to_state = 'resting' AND o.pool IS NOT NULL AND NOT o.alive THEN o.before ELSE to_state END,
    due = CASE WHEN to_state = 'changed' THEN NULL ELSE o.due END,
    seen = CASE WHEN o.alive THEN n.until - n.lease ELSE o.seen END
  FROM bartack.node n WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' AND n.id = o.node RETURNING true $$;

DROP FUNCTION bartack.beat_fleet(int);
-- Renews the lease of a node, and does what is due for all. Only a steady node buries: one whose own beats came without a gap of
-- half a lease for a whole lease. After the database was away no node is steady, so all of them renew first.
CREATE FUNCTION bartack.beat_fleet(me int)
RETURNS TABLE (state text, now_us bigint, buried int[], queued bool, asked bigint[]) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE mine bartack.node; c timestamptz := clock_timestamp(); dead int[];
BEGIN
  SET LOCAL synchronous_commit = off;
  UPDATE bartack.node n SET steady = CASE WHEN n.until - n.lease < c - n.lease / 2 THEN c ELSE n.steady END, until = c + n.lease
    WHERE n.id = me AND n.state IN ('live', 'draining') RETURNING n.* INTO mine;
  IF NOT FOUND THEN
    RETURN QUERY SELECT n.state, (extract(epoch FROM c) * 1e6)::bigint, NULL::int[], false, NULL::bigint[]
      FROM bartack.node n WHERE n.id = me;
    RETURN;
  END IF;
  IF mine.steady < c - mine.lease THEN
    -- Nodes of one run have no slots: their process may be a person's, and gets more time.
    SELECT array_agg(n.id ORDER BY n.id) INTO dead FROM bartack.node n
      WHERE n.state IN ('live', 'draining') AND n.until + CASE WHEN n.slots = 0 THEN interval '30 s' ELSE interval '0' END < c;
    IF dead IS NOT NULL THEN
      -- Owners are locked before nodes, and a node that has renewed its lease meanwhile is left alone.
      PERFORM 1 FROM bartack.owner o WHERE o.node = ANY (dead) ORDER BY o.run FOR UPDATE;
      SELECT array_agg(d.id ORDER BY d.id) INTO dead FROM (SELECT n.id FROM bartack.node n
        WHERE n.id = ANY (dead) AND n.state IN ('live', 'draining')
          AND n.until + CASE WHEN n.slots = 0 THEN interval '30 s' ELSE interval '0' END < c
        ORDER BY n.id FOR UPDATE SKIP LOCKED) d;
      IF dead IS NOT NULL THEN PERFORM bartack.bury(dead, 'its node died'); END IF;
    END IF;
  END IF;
  UPDATE bartack.owner o SET state = 'queued', due = NULL WHERE o.run IN (SELECT r.run FROM bartack.owner r
    WHERE r.state = 'resting' AND r.due <= c ORDER BY r.due LIMIT 100 FOR UPDATE SKIP LOCKED);
  RETURN QUERY SELECT mine.state, (extract(epoch FROM c) * 1e6)::bigint, dead,
    EXISTS (SELECT 1 FROM bartack.owner o WHERE o.state = 'queued' AND o.pool = ANY (mine.pools)),
    ARRAY(SELECT DISTINCT q.run FROM bartack.request q JOIN bartack.owner o ON o.run = q.run
      WHERE o.node = me AND q.state = 'open' AND (q.late_at IS NULL OR q.late_at > c));
END $$;
