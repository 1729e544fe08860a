-- What the roles may do, for all tables and functions that there are: executed by their owner after each migration, if there are roles.
--
-- Nothing is written but by functions, which run with the rights of the owner of the tables, and check who has called them. What is
-- read directly is limited to the teams of the reader. A function that is not named here is called by other functions only.

DO $$
DECLARE
  r record;
  of_all text[] := ARRAY['administers', 'my_teams'];
  of_owners text[] := ARRAY['join_node', 'beat', 'leave', 'claim_run', 'append', 'look', 'alive', 'mark', 'release', 'keep_content',
    'keep_part', 'keep_program', 'accept_loss', 'drain', 'submit', 'enqueue',
    'settle', 'hold', 'begin_object', 'keep_object'];
  of_nodes text[] := ARRAY['join_fleet', 'beat_fleet', 'claim', 'give_back', 'progressed', 'begun', 'report', 'do_chore', 'note_chore', 'take_schedule',
    'note_schedule', 'share_pauses', 'take_orphans', 'drop_orphans', 'note_orphans'];
  of_users text[] := ARRAY['adopt', 'remove', 'drop_journal', 'keep_value', 'keep_value_part', 'add_schedule', 'remove_schedule', 'ask', 'withdraw'];
BEGIN
  FOR r IN SELECT p.oid::regprocedure AS call, p.proname AS name, p.prosecdef AS is_definer,
      p.proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp'] AS has_other_path
      FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'bartack'::regnamespace LOOP
    IF NOT r.is_definer THEN EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', r.call); END IF;
    -- Otherwise a caller could put tables and types of its own before those of the system. "append" says the schema of every name.
    IF r.has_other_path AND r.name <> 'append' THEN
      EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', r.call);
    END IF;
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC, bartack_node, bartack_user, bartack_reader', r.call);
    IF r.name = ANY (of_all) THEN
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO bartack_node, bartack_user, bartack_reader', r.call);
    END IF;
    IF r.name = ANY (of_owners || of_nodes) THEN EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO bartack_node', r.call); END IF;
    IF r.name = ANY (of_owners || of_users) THEN EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO bartack_user', r.call); END IF;
  END LOOP;
END $$;

DO $$
DECLARE r record; mine text;
BEGIN
  FOR r IN SELECT c.oid, c.oid::regclass AS name, c.relname, c.relispartition, c.relrowsecurity,
      EXISTS (SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'of_team') AS has_policy,
      EXISTS (SELECT 1 FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'guard') AS has_guard,
      EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'team') AS has_team,
      EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'run') AS has_run
      FROM pg_catalog.pg_class c WHERE c.relnamespace = 'bartack'::regnamespace AND c.relkind IN ('r', 'p') LOOP
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC, bartack_node, bartack_user, bartack_reader', r.name);
    -- A partition is read through its table, whose policy holds.
    CONTINUE WHEN r.relispartition;
    EXECUTE format('GRANT SELECT ON %s TO bartack_node, bartack_user, bartack_reader', r.name);
    mine := CASE
      WHEN r.relname = 'team' THEN 'name = ANY ((SELECT bartack.my_teams())::text[])'
      WHEN r.relname = 'pause' THEN 'false' -- read by its function, which knows the pools of the node
      WHEN r.has_team THEN 'team = ANY ((SELECT bartack.my_teams())::text[])'
      WHEN r.has_run THEN format('EXISTS (SELECT 1 FROM bartack.run its WHERE its.no = %I.run)', r.relname)
    END;
    CONTINUE WHEN mine IS NULL;
    IF NOT r.relrowsecurity THEN EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', r.name); END IF;
    IF NOT r.has_policy THEN EXECUTE format('CREATE POLICY of_team ON %s FOR SELECT USING (%s)', r.name, mine); END IF;
    -- Large values and commits are written by functions that check their run, and commits have no time for a second look.
    CONTINUE WHEN r.has_guard OR r.relname IN ('journal', 'content', 'part', 'blob', 'orphan') OR NOT (r.has_team OR r.has_run);
    EXECUTE format('CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION bartack.%I()',
      r.name, CASE WHEN r.has_team THEN 'guard_team' ELSE 'guard_of_run' END);
  END LOOP;
END $$;
