-- Runs in PostgreSQL. All times are those of this database; no host ever sends one.
--
-- Who decides what:
--   append    writes commits, if the caller's fence is the run's and no entry is missing before them
--   join, beat, leave, bury   whether a node is alive
--   claim_run, release        who owns a run; each raises the fence
--   submit, mark, remove      that a run is there, and what lists show of it
-- Rows of "owner" are locked in the order of runs, and before rows of "node", everywhere.

CREATE TABLE bartack.level (
  version int PRIMARY KEY,
  works_from int NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp());

CREATE TABLE bartack.team (
  name text COLLATE "C" PRIMARY KEY);
INSERT INTO bartack.team VALUES ('default');

CREATE TABLE bartack.node (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  seat uuid NOT NULL,
  boot text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  role text NOT NULL DEFAULT session_user,
  slots int NOT NULL,
  state text NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'draining', 'left', 'dead')),
  lease interval NOT NULL,
  until timestamptz NOT NULL,
  joined timestamptz NOT NULL DEFAULT clock_timestamp()) WITH (fillfactor = 30);
CREATE INDEX ON bartack.node (seat) WHERE state IN ('live', 'draining');

CREATE TABLE bartack.run (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C" NOT NULL UNIQUE,
  team text COLLATE "C" NOT NULL REFERENCES bartack.team,
  submitted_by text NOT NULL DEFAULT session_user,
  summary bytea,
  at_least bigint NOT NULL DEFAULT 0,
  marked bigint NOT NULL DEFAULT 0,
  program bytea,
  program_size bigint NOT NULL DEFAULT 0,
  created timestamptz NOT NULL DEFAULT clock_timestamp());

-- Narrow, and written only when ownership changes.
CREATE TABLE bartack.owner (
  run bigint PRIMARY KEY REFERENCES bartack.run ON DELETE CASCADE,
  state text NOT NULL CHECK (state IN ('queued', 'owned', 'resting', 'held', 'over')),
  fence int NOT NULL,
  node int REFERENCES bartack.node,
  alive bool NOT NULL DEFAULT false,
  seen timestamptz,
  reason text NOT NULL DEFAULT '',
  CHECK ((state = 'owned') = (node IS NOT NULL)));
CREATE INDEX ON bartack.owner (node) WHERE state = 'owned';

-- One row is one commit of one run: its lines, each with its newline. No line refers to another row, so that a run is deleted by
-- its number. 100,000 runs have a partition.
CREATE TABLE bartack.journal (
  run bigint NOT NULL,
  seq bigint NOT NULL,
  last bigint NOT NULL,
  fence int NOT NULL,
  crc bigint NOT NULL,
  lines bytea NOT NULL,
  PRIMARY KEY (run, seq),
  CHECK (last >= seq)) PARTITION BY RANGE (run);

-- Large values, once for each team, in pieces that a client can take; a piece is stored before the value counts as kept.
CREATE TABLE bartack.content (
  team text COLLATE "C" NOT NULL REFERENCES bartack.team,
  sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
  size bigint NOT NULL,
  touched timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (team, sha256));
CREATE TABLE bartack.part (
  team text COLLATE "C" NOT NULL,
  sha256 bytea NOT NULL,
  no int NOT NULL,
  bytes bytea NOT NULL,
  PRIMARY KEY (team, sha256, no),
  FOREIGN KEY (team, sha256) REFERENCES bartack.content ON DELETE CASCADE);
ALTER TABLE bartack.part ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE bartack.blob (
  run bigint NOT NULL REFERENCES bartack.run ON DELETE CASCADE,
  team text COLLATE "C" NOT NULL,
  sha256 bytea NOT NULL,
  PRIMARY KEY (run, sha256),
  FOREIGN KEY (team, sha256) REFERENCES bartack.content);
CREATE INDEX ON bartack.blob (team, sha256);

-- The fence, the gap and the line are checked and written by one statement. The lock on the owner is shared, so that appends of
-- other transactions to the same row leave no dead version of it, and one that changes the owner waits for them.
CREATE FUNCTION bartack.append(runs bigint[], fences int[], seqs bigint[], lasts bigint[], crcs bigint[], texts bytea[])
RETURNS TABLE (run bigint, outcome text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY WITH held AS MATERIALIZED (
    SELECT a.* FROM unnest($1, $2, $3, $4, $5, $6) AS a(run, fence, seq, last, crc, lines)
    JOIN bartack.owner o ON o.run = a.run AND o.fence = a.fence AND o.state = 'owned' ORDER BY o.run FOR SHARE OF o),
  written AS (
    INSERT INTO bartack.journal AS j (run, seq, last, fence, crc, lines)
    SELECT h.run, h.seq, h.last, h.fence, h.crc, h.lines FROM held h
    WHERE h.seq = 1 + coalesce((SELECT p.last FROM bartack.journal p WHERE p.run = h.run ORDER BY p.seq DESC LIMIT 1), 0)
    ON CONFLICT DO NOTHING RETURNING j.run)
  SELECT a.run, CASE WHEN w.run IS NOT NULL THEN 'written' WHEN h.run IS NULL THEN 'lost' ELSE 'look' END
  FROM unnest($1) AS a(run) LEFT JOIN held h USING (run) LEFT JOIN written w USING (run);
END $$;

-- What is there at these places, for commits whose append has answered nothing or 'look'.
CREATE FUNCTION bartack.look(runs bigint[], seqs bigint[])
RETURNS TABLE (run bigint, owner_fence int, fence int, last bigint, crc bigint, ends bigint) LANGUAGE sql STABLE
SET search_path = pg_catalog AS $$
  SELECT a.run, CASE WHEN o.state = 'owned' THEN o.fence ELSE -1 END, j.fence, j.last, j.crc,
    coalesce((SELECT p.last FROM bartack.journal p WHERE p.run = a.run ORDER BY p.seq DESC LIMIT 1), 0)
  FROM unnest($1, $2) AS a(run, seq) LEFT JOIN bartack.owner o ON o.run = a.run
  LEFT JOIN bartack.journal j ON j.run = a.run AND j.seq = a.seq $$;

CREATE FUNCTION bartack.make_partition(of_run bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE part bigint := of_run / 100000;
BEGIN
  IF to_regclass(format('bartack.journal_%s', part)) IS NULL THEN
    PERFORM pg_advisory_xact_lock(hashtext('bartack.journal'));
    EXECUTE format('CREATE TABLE IF NOT EXISTS bartack.journal_%s PARTITION OF bartack.journal FOR VALUES FROM (%s) TO (%s)',
      part, part * 100000, (part + 1) * 100000);
  END IF;
END $$;
SELECT bartack.make_partition(0);

-- A run with its first commit, owned by nobody. An id that is there already is refused.
CREATE FUNCTION bartack.submit(name text, its_team text, last bigint, crc bigint, lines bytea, alive_us bigint)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE made bigint;
BEGIN
  INSERT INTO bartack.run (id, team) VALUES (name, its_team) ON CONFLICT (id) DO NOTHING RETURNING no INTO made;
  IF made IS NULL THEN RETURN NULL; END IF;
  PERFORM bartack.make_partition(made);
  INSERT INTO bartack.owner (run, state, fence, seen)
    VALUES (made, 'resting', 1, coalesce(to_timestamp(alive_us / 1e6), clock_timestamp()));
  INSERT INTO bartack.journal VALUES (made, 1, submit.last, 1, submit.crc, submit.lines);
  RETURN made;
END $$;

-- Declares nodes dead, and frees their runs under higher fences: from here on nothing of theirs is accepted.
CREATE FUNCTION bartack.bury(ids int[], why text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner WHERE node = ANY (ids) ORDER BY run FOR UPDATE;
  UPDATE bartack.node SET state = 'dead' WHERE id = ANY (ids) AND state IN ('live', 'draining');
  UPDATE bartack.owner o SET state = 'resting', fence = o.fence + 1, node = NULL, alive = false, reason = why,
    seen = CASE WHEN o.alive THEN n.until - n.lease ELSE o.seen END
  FROM bartack.node n WHERE n.id = o.node AND n.id = ANY (ids);
END $$;

-- A new node. Earlier ones of the same seat and the same start of the host are gone: the caller has the lock of the seat.
CREATE FUNCTION bartack.join_node(its_name text, its_seat uuid, its_boot text, its_version text, its_slots int, lease_s float8)
RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE made int; gone int[];
BEGIN
  SELECT array_agg(id ORDER BY id) INTO gone FROM bartack.node
    WHERE seat = its_seat AND boot = its_boot AND state IN ('live', 'draining');
  IF gone IS NOT NULL THEN PERFORM bartack.bury(gone, 'its process died'); END IF;
  INSERT INTO bartack.node (name, seat, boot, version, slots, lease, until)
    VALUES (its_name, its_seat, its_boot, its_version, its_slots, make_interval(secs => lease_s),
      clock_timestamp() + make_interval(secs => lease_s))
    RETURNING id INTO made;
  RETURN made;
END $$;

-- Renews the lease of a node. A beat that is lost only shortens it, so it need not be synced.
CREATE FUNCTION bartack.beat(me int) RETURNS TABLE (state text, now_us bigint) LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE c timestamptz := clock_timestamp();
BEGIN
  SET LOCAL synchronous_commit = off;
  UPDATE bartack.node n SET until = c + n.lease WHERE n.id = me AND n.state IN ('live', 'draining');
  RETURN QUERY SELECT n.state, (extract(epoch FROM c) * 1e6)::bigint FROM bartack.node n WHERE n.id = me;
END $$;

-- Owns one run. A run of a node that is late by more than its grace is freed first: the node cannot be running it any more. A claim
-- whose answer was lost is made again, and answered the same. A run that is being pulled can be claimed only by the directory it goes to.
CREATE FUNCTION bartack.claim_run(me int, its_run bigint, grace_s float8)
RETURNS TABLE (outcome text, fence int, owner text, wait_s float8) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE mine bartack.owner; other bartack.node; c timestamptz;
BEGIN
  SELECT * INTO mine FROM bartack.owner o WHERE o.run = its_run FOR UPDATE;
  IF NOT FOUND THEN RETURN QUERY SELECT 'gone', 0, '', 0::float8; RETURN; END IF;
  PERFORM 1 FROM bartack.node WHERE id = me AND state = 'live' FOR SHARE;
  IF NOT FOUND THEN RETURN QUERY SELECT 'dead', 0, '', 0::float8; RETURN; END IF;
  IF mine.state = 'held' AND mine.reason <> (SELECT 'pulled to ' || seat FROM bartack.node WHERE id = me) THEN
    RETURN QUERY SELECT 'held', mine.fence, mine.reason, 0::float8;
    RETURN;
  END IF;
  IF mine.node = me THEN RETURN QUERY SELECT 'claimed', mine.fence, '', 0::float8; RETURN; END IF;
  IF mine.state = 'owned' THEN
    c := clock_timestamp();
    SELECT * INTO other FROM bartack.node WHERE id = mine.node;
    IF other.until + make_interval(secs => grace_s) >= c THEN
      RETURN QUERY SELECT 'owned', mine.fence, other.name,
        extract(epoch FROM other.until + make_interval(secs => grace_s) - c)::float8;
      RETURN;
    END IF;
    PERFORM bartack.bury(ARRAY[other.id], 'its node died');
    SELECT * INTO mine FROM bartack.owner o WHERE o.run = its_run;
  END IF;
  RETURN QUERY UPDATE bartack.owner o SET state = 'owned', fence = o.fence + 1, node = me, alive = false, reason = ''
    WHERE o.run = its_run RETURNING 'claimed', o.fence, '', 0::float8;
END $$;

-- A hub runs the run: from here on the beats of its node are its signs of life.
CREATE FUNCTION bartack.alive(its_run bigint, its_fence int) RETURNS bool LANGUAGE sql SET search_path = pg_catalog AS $$
  UPDATE bartack.owner SET alive = true WHERE run = $1 AND fence = $2 AND state = 'owned' RETURNING true $$;

-- Whether an owner still owns a run; nothing changes that before the transaction ends.
CREATE FUNCTION bartack.owns(its_run bigint, its_fence int) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner o WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' FOR SHARE;
  RETURN FOUND;
END $$;

-- Ends an ownership in order; false if it was over already.
CREATE FUNCTION bartack.release(its_run bigint, its_fence int, to_state text, why text) RETURNS bool LANGUAGE sql
SET search_path = pg_catalog AS $$
  UPDATE bartack.owner o SET state = to_state, fence = o.fence + 1, node = NULL, alive = false, reason = why,
    seen = CASE WHEN o.alive THEN n.until - n.lease ELSE o.seen END
  FROM bartack.node n WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' AND n.id = o.node RETURNING true $$;

CREATE FUNCTION bartack.leave(me int) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM bartack.bury(ARRAY[me], 'its process ended');
  UPDATE bartack.node SET state = 'left' WHERE id = me;
END $$;

-- What lists show of a run. Only its owner may say that.
CREATE FUNCTION bartack.mark(its_run bigint, its_fence int, its_summary bytea, seq bigint) RETURNS bool LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner o WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' FOR SHARE;
  IF NOT FOUND THEN RETURN false; END IF;
  UPDATE bartack.run SET summary = its_summary, at_least = greatest(at_least, seq), marked = marked + 1 WHERE no = its_run;
  RETURN true;
END $$;

-- Deletes a run that nothing owns, with everything that is kept of it; true if it is gone.
CREATE FUNCTION bartack.remove(its_run bigint) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner WHERE run = its_run FOR UPDATE;
  IF EXISTS (SELECT 1 FROM bartack.owner WHERE run = its_run AND state = 'owned') THEN RETURN false; END IF;
  DELETE FROM bartack.journal WHERE run = its_run;
  DELETE FROM bartack.run WHERE no = its_run;
  RETURN true;
END $$;
