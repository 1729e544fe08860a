-- The largest values, in an object store: "content" names the object, and has no pieces then.
--
--   begin_object   before an object is written
--   keep_object    when it is durable: from here on a content names it
--   drop_content   as before; what it leaves in the object store is deleted a day later
--   take_orphans, drop_orphans, note_orphans   a node deletes objects that nothing names, and then their rows here
--
-- Each object is named by a row of "content" or by one of "orphan", from before it is written until after it is deleted. So whatever
-- is killed in between, no object stays that nothing here knows.

ALTER TABLE bartack.content ADD COLUMN key text COLLATE "C";
CREATE UNIQUE INDEX ON bartack.content (key) WHERE key IS NOT NULL;

-- Objects that no content names: not yet, or not any more.
CREATE TABLE bartack.orphan (
  key text COLLATE "C" PRIMARY KEY,
  team text COLLATE "C" NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  is_going bool NOT NULL DEFAULT false);
CREATE INDEX ON bartack.orphan (since);

-- Begins to keep a large value of a team as an object: 'kept' (the value is there), or 'send' (write the object, then "keep_object").
CREATE FUNCTION bartack.begin_object(its_team text, digest bytea, its_key text) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF its_team <> ALL (bartack.my_teams()) THEN PERFORM bartack.refuse('use the team ' || quote_ident(its_team)); END IF;
  IF its_key !~ '^[0-9a-f]{32}$' THEN PERFORM bartack.refuse('give an object this name'); END IF;
  UPDATE bartack.content SET touched = clock_timestamp() WHERE team = its_team AND sha256 = digest;
  IF FOUND THEN RETURN 'kept'; END IF;
  INSERT INTO bartack.orphan (key, team) VALUES (its_key, its_team) ON CONFLICT DO NOTHING;
  RETURN 'send';
END $$;

-- An object is durable: from here on it is the content of this value. 'again': it was not written in time, and is deleted.
CREATE FUNCTION bartack.keep_object(its_team text, digest bytea, its_size bigint, its_key text) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF its_team <> ALL (bartack.my_teams()) THEN PERFORM bartack.refuse('use the team ' || quote_ident(its_team)); END IF;
  DELETE FROM bartack.orphan WHERE key = its_key AND team = its_team AND NOT is_going;
  IF FOUND THEN
    INSERT INTO bartack.content (team, sha256, size, key) VALUES (its_team, digest, its_size, its_key) ON CONFLICT DO NOTHING;
    IF FOUND THEN RETURN 'kept'; END IF;
    -- Another process was faster with the same content.
    INSERT INTO bartack.orphan (key, team) VALUES (its_key, its_team);
  END IF;
  UPDATE bartack.content SET touched = clock_timestamp() WHERE team = its_team AND sha256 = digest;
  RETURN CASE WHEN FOUND THEN 'kept' ELSE 'again' END;
END $$;

-- As before; an object is deleted a day after its row, so that a copy of the object store that is made within a day after a backup of
-- the database has all that the backup names.
CREATE OR REPLACE FUNCTION bartack.drop_content(most int) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE found_n int; dropped int;
BEGIN
  WITH old AS MATERIALIZED (SELECT d.team, d.sha256, CASE WHEN d.key IS NULL THEN d.size ELSE 0 END AS size FROM bartack.content d
    WHERE d.touched < clock_timestamp() - interval '1 day'
      AND NOT EXISTS (SELECT 1 FROM bartack.blob b WHERE b.team = d.team AND b.sha256 = d.sha256)
      AND NOT EXISTS (SELECT 1 FROM bartack.schedule s WHERE s.team = d.team AND s.copy = d.sha256)
    ORDER BY d.team, d.sha256 LIMIT most FOR UPDATE SKIP LOCKED),
  few AS (SELECT o.*, sum(o.size) OVER (ORDER BY o.team, o.sha256) - o.size AS sum_before FROM old o),
  gone AS (DELETE FROM bartack.content c USING few f
    WHERE c.team = f.team AND c.sha256 = f.sha256 AND f.sum_before < 256 * 1048576::bigint RETURNING c.team, c.key),
  left_over AS (INSERT INTO bartack.orphan (key, team) SELECT g.key, g.team FROM gone g WHERE g.key IS NOT NULL)
  SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM gone) INTO found_n, dropped;
  RETURN found_n = most OR dropped < found_n;
END $$;

-- Names of objects that nothing has named for a day, for a node that deletes them. No content gets such an object any more; if the
-- node is killed, the next one gets the same names.
CREATE FUNCTION bartack.take_orphans(me int, most int) RETURNS SETOF text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM bartack.node n WHERE n.id = me AND n.role = session_user AND n.state = 'live') THEN RETURN; END IF;
  RETURN QUERY UPDATE bartack.orphan o SET is_going = true WHERE o.key IN (SELECT d.key FROM bartack.orphan d
    WHERE d.since < clock_timestamp() - interval '1 day' ORDER BY d.since LIMIT most FOR UPDATE SKIP LOCKED) RETURNING o.key;
END $$;

-- These objects are deleted.
CREATE FUNCTION bartack.drop_orphans(keys text[]) RETURNS void LANGUAGE sql SET search_path = pg_catalog AS $$
  DELETE FROM bartack.orphan WHERE key = ANY (keys) AND is_going $$;

-- What kept a node from deleting them; empty if nothing did. The next ones are deleted soon if there are more.
CREATE FUNCTION bartack.note_orphans(fault text, has_more bool) RETURNS void LANGUAGE sql SET search_path = pg_catalog AS $$
  UPDATE bartack.chore SET problem = fault, done = CASE WHEN fault = '' THEN clock_timestamp() ELSE done END,
    due = CASE WHEN has_more THEN clock_timestamp() + interval '1 s' ELSE due END WHERE name = 'objects' $$;

INSERT INTO bartack.chore (name, every) VALUES ('objects', '10 minutes');
