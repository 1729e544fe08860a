-- The roles, and the tables and functions in the hands of the one that owns them. It can be executed again.

DO $$
DECLARE r text;
BEGIN
  FOREACH r IN ARRAY ARRAY['bartack_owner', 'bartack_node', 'bartack_user', 'bartack_reader'] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = r) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', r);
    END IF;
  END LOOP;
  -- The caller hands over what it owns, which it may do as a member of the role that gets it.
  IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) AND current_user <> 'bartack_owner' THEN
    GRANT bartack_owner TO CURRENT_USER;
  END IF;
END $$;

GRANT USAGE ON SCHEMA bartack TO bartack_owner, bartack_node, bartack_user, bartack_reader;
GRANT CREATE ON SCHEMA bartack TO bartack_owner;

DO $$
DECLARE r record;
BEGIN
  FOR r IN SELECT c.oid::regclass AS name FROM pg_catalog.pg_class c
      WHERE c.relnamespace = 'bartack'::regnamespace AND c.relkind IN ('r', 'p') AND c.relowner <> 'bartack_owner'::regrole LOOP
    EXECUTE format('ALTER TABLE %s OWNER TO bartack_owner', r.name);
  END LOOP;
  FOR r IN SELECT p.oid::regprocedure AS name FROM pg_catalog.pg_proc p
      WHERE p.pronamespace = 'bartack'::regnamespace AND p.proowner <> 'bartack_owner'::regrole LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO bartack_owner', r.name);
  END LOOP;
END $$;
