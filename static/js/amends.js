// The one entry: every page of the desk loads this module, and each part starts by itself
// where the page has something for it to do.
import "./reports.js";
import "./moments.js";
import "./keep.js";
import "./live.js";
import "./query.js";
import "./selection.js";
import "./chosen.js";
import "./palette.js";
import "./keys.js";
import "./copy.js";
import "./current.js";
import "./sign.js";

document.documentElement.classList.add("js");
