/** SQLite files that several processes of one machine share: the spool, and the keys of twins. */
import type { DatabaseSync } from "node:sqlite";
/**
 * Open a file with these tables; every write is durable when it returns. Throws where the file
 * stays locked for half a minute.
 */
export declare function connect(path: string, tables: string): DatabaseSync;
