/** The one place that speaks HTTP with the desk, and tells "not reachable" from "refused". */
import { type JsonObject } from "./protocol/canonical.ts";
export type Asked = {
    method?: "GET" | "POST" | "PUT";
    body?: string;
    params?: Record<string, string> | undefined;
    /** How long the desk may take to answer a long poll. */
    waitSeconds?: number;
    /** And anything else. */
    answerSeconds?: number;
    /** Whoever asks may want no answer any more; then its reason is thrown. */
    signal?: AbortSignal | undefined;
};
/** The desk's address as people paste it, without what every request adds. */
export declare function trimmed(url: string): string;
/** A connection to one desk under one key. */
export declare class Wire {
    #private;
    /** As it is told in errors and logs. */
    readonly address: string;
    constructor(url: string, key: string);
    get(path: string, asked?: Omit<Asked, "method" | "body">): Promise<JsonObject>;
    post(path: string, body: string, signal?: AbortSignal): Promise<JsonObject>;
    putBlob(sha256: string, body: string): Promise<void>;
    /** One JSON object. Throws DeskUnreachable, KeyRefused, or Refused with status and problem. */
    send(path: string, asked: Asked): Promise<JsonObject>;
}
