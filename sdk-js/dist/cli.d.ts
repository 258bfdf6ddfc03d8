#!/usr/bin/env node
/**
 * `npx amends`: `verify` checks a proof offline, `aside` shows what could not be sent, `policy`
 * checks a policy's file and puts it in force, by a person's token (docs/policy-api.md).
 */
export {};
