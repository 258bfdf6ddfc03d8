/**
 * What the last policy says while the desk is away: is this call to be kept back?
 *
 * The desk judges; this is only the fallback, and where it cannot tell it keeps the call back. A
 * condition cannot be evaluated here: it counts as met where it asks or forbids, and not where it
 * allows.
 */
import { isObject } from "./protocol/canonical.js";
import { skeleton } from "./protocol/lookalikes.js";
import { CLASSES, compareSpecificity, globMatches, globSpecificity, isClass, RISK_OF_CLASS, RISKS, WITHOUT_EFFECT, } from "./protocol/vocabulary.js";
const EXTERNAL = new Set(["external_reversible", "external_irreversible"]);
const UNCATALOGUED = "external_reversible"; // that the catalogue's risk stands for
const ASKED_FROM = RISKS.indexOf("high");
/** Whether the call needs the desk. Without a policy every external class does. */
export function isGated(document, call) {
    const safety = document?.["agentSafety"];
    if (!isObject(safety) || !isClass(call.effectClass)) {
        return EXTERNAL.has(call.effectClass) || !isClass(call.effectClass);
    }
    if (isGuarded(safety, call.tool, call.effectClass) || isUnknown(safety, call.tool))
        return true;
    const base = baseRisk(safety, call.tool, call.effectClass, call.risk);
    const verdict = byRules(member(safety, "policies"), call.tool, base, rank(call.risk));
    return verdict ?? base >= ASKED_FROM;
}
/** The class that the workspace's catalogue has of a tool, by its most specific entry. */
export function cataloguedClass(document, tool) {
    const safety = document?.["agentSafety"];
    const found = isObject(safety) ? entryOf(safety, tool)["class"] : null;
    return isClass(found) ? found : null;
}
/**
 * Whether a call that breaks the order of a saga needs the desk, too. Without a policy it does.
 *
 * The order is: what can be undone, one pivot, and then only what can be retried.
 */
export function keepsOrder(document) {
    const safety = document?.["agentSafety"];
    return !isObject(safety) || safety["order"] === "ASK" || safety["order"] === "DENY";
}
/**
 * Whether there is no way back after this call: its agent says so, or says nothing, and it cannot
 * be undone and the order of a saga is kept.
 */
export function isPivot(document, call, saga) {
    if (saga)
        return saga === "pivot";
    const classes = [call.effectClass, cataloguedClass(document, call.tool)];
    return classes.includes("external_irreversible") && keepsOrder(document);
}
/** The paths that the workspace wants masked. */
export function maskPaths(document) {
    const paths = auditOf(document)["mask"];
    return Array.isArray(paths) ? paths.filter((path) => typeof path === "string") : [];
}
/** Whether the workspace keeps how targets were, which it does where it does not say. */
export function keepsSnapshots(document) {
    return auditOf(document)["captureSnapshot"] !== false;
}
/** Whether placeholders of cards and IBANs carry the last four characters. */
export function showsLast4(document) {
    return auditOf(document)["showLast4"] === true;
}
function auditOf(document) {
    return member(member(document ?? {}, "agentSafety"), "audit");
}
function member(object, name) {
    const found = object[name];
    return isObject(found) ? found : {};
}
/**
 * Whether a rule under `always`, which asks or denies, could be met by this call. One without
 * effect goes on: what it reads is told afterwards.
 */
function isGuarded(safety, tool, saidClass) {
    const classes = [saidClass, entryOf(safety, tool)["class"] || saidClass];
    if (classes.every((one) => isClass(one) && WITHOUT_EFFECT.has(one)))
        return false;
    return Object.keys(member(safety, "always")).some((glob) => globMatches(glob, tool));
}
/**
 * Whether unknown tools ask and neither a rule nor the catalogue lists this one; one that only
 * looks like a tool that is written out is not listed by a wider glob, either.
 */
function isUnknown(safety, tool) {
    if (String(safety["unknownTools"] || "").toUpperCase() !== "ASK")
        return false;
    const listed = ["policies", "tools"].flatMap((part) => Object.keys(member(safety, part)));
    if (!listed.some((glob) => globMatches(glob, tool)))
        return true;
    const written = [...listed, ...Object.keys(member(safety, "always"))];
    const look = skeleton(tool);
    return !written.includes(tool) && written.some((glob) => skeleton(glob) === look);
}
/** Of the rules that are met, the most specific glob decides, among equals the strictest. */
function byRules(policies, tool, base, said) {
    const globs = Object.keys(policies)
        .filter((glob) => globMatches(glob, tool))
        .map((glob) => ({ glob, place: globSpecificity(glob) }))
        .sort((one, other) => compareSpecificity(other.place, one.place));
    while (globs.length > 0) {
        const { place } = globs[0];
        const end = globs.findIndex((one) => compareSpecificity(one.place, place) !== 0);
        const equals = globs.splice(0, end < 0 ? globs.length : end);
        const rules = equals.flatMap(({ glob }) => policies[glob]).filter((rule) => isObject(rule));
        if (rules.some((rule) => asks(rule, base, said)))
            return true;
        if (rules.some((rule) => (rule["when"] ?? null) === null))
            return false;
    }
    return null;
}
/** An explicit word stands; without one, people are asked from high risk up. */
function asks(rule, base, said) {
    const approval = String(rule["approval"] || "").toUpperCase();
    if (approval)
        return approval !== "AUTO";
    const own = rule["risk"];
    return (own ? Math.max(rank(own), said) : base) >= ASKED_FROM;
}
/** The catalogue's class and risk may be raised by what the agent says, never lowered. */
function baseRisk(safety, tool, saidClass, said) {
    const entry = entryOf(safety, tool);
    const catalogued = isClass(entry["class"]) ? entry["class"] : null;
    const found = CLASSES[Math.max(CLASSES.indexOf(saidClass), indexOfClass(catalogued))];
    if (!entry["risk"])
        return Math.max(rank(RISK_OF_CLASS[found]), rank(said));
    const isRaised = CLASSES.indexOf(found) > CLASSES.indexOf(catalogued ?? UNCATALOGUED);
    return Math.max(rank(entry["risk"]), isRaised ? rank(RISK_OF_CLASS[found]) : 0, rank(said));
}
/** What the catalogue has of a tool: the most specific glob, among equals the strictest. */
function entryOf(safety, tool) {
    const tools = member(safety, "tools");
    const fitting = Object.keys(tools)
        .filter((glob) => globMatches(glob, tool))
        .map((glob) => {
        const entry = member(tools, glob);
        return { entry, place: [...globSpecificity(glob), ...strictness(entry)] };
    })
        .sort((one, other) => compareSpecificity(other.place, one.place));
    return fitting[0]?.entry ?? {};
}
/** Among equally specific entries the strictest counts, as on the desk. */
function strictness(entry) {
    const known = isClass(entry["class"]) ? entry["class"] : null;
    const ofClass = known ? rank(RISK_OF_CLASS[known]) : 0;
    return [entry["risk"] ? rank(entry["risk"]) : ofClass, indexOfClass(known)];
}
function indexOfClass(found) {
    return found === null ? -1 : CLASSES.indexOf(found);
}
/** A risk as a number; one that is not known counts as the highest, none as the lowest. */
function rank(said) {
    if (!said)
        return 0;
    const place = RISKS.indexOf(String(said).toLowerCase());
    return place < 0 ? RISKS.length - 1 : place;
}
