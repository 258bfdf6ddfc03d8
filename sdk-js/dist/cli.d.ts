#!/usr/bin/env node
/** `npx amends`: `verify` checks a proof offline, `aside` shows what could not be sent. */
export {};
