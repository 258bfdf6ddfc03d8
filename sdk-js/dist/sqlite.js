/** SQLite files that several processes of one machine share: the spool, and the keys of twins. */
// Imported by name it would stop an older Node with an error that does not say what is missing.
const sqlite = process.getBuiltinModule?.("node:sqlite");
if (sqlite === undefined) {
    throw new Error(`@amends/client needs Node 22.16 or newer; this is ${process.version}.`);
}
const { DatabaseSync: Database } = sqlite;
// Another process that shares the file has it for one commit.
const LOCK_MILLISECONDS_MAX = 30_000;
const PAUSE_MILLISECONDS = 10;
const SQLITE_BUSY = 5;
/**
 * Open a file with these tables; every write is durable when it returns. Throws where the file
 * stays locked for half a minute.
 */
export function connect(path, tables) {
    const database = new Database(path, { timeout: LOCK_MILLISECONDS_MAX });
    try {
        writeAhead(database);
        database.exec(`PRAGMA synchronous = FULL;${tables}`);
    }
    catch (error) {
        database.close();
        throw error;
    }
    return database;
}
/** SQLite's own wait for a lock does not cover this change, which the first of all makes. */
function writeAhead(database) {
    const until = performance.now() + LOCK_MILLISECONDS_MAX;
    const pause = new Int32Array(new SharedArrayBuffer(4));
    for (;;) {
        try {
            database.exec("PRAGMA journal_mode = WAL");
            return;
        }
        catch (error) {
            const { errcode = 0 } = error;
            if ((errcode & 0xff) !== SQLITE_BUSY || performance.now() > until)
                throw error;
            Atomics.wait(pause, 0, 0, PAUSE_MILLISECONDS);
        }
    }
}
