// Replaces the page's content every 5 s, but for the forms that take HTTP_ADMIN_TOKEN, unless the page
// is hidden or text is selected.
(() => {
	let asking = false;
	const forms = document.querySelector("#forms"), lookup = document.querySelector("#lookup"), silence = document.querySelector("#silence");
	const show = (main, next) => {
		const place = next.querySelector("#forms");
		if (!forms || !place) return main.replaceWith(next);
		for (const old of [...main.childNodes]) if (old !== forms) old.remove();
		forms.before(...[...next.childNodes].slice(0, [...next.childNodes].indexOf(place)));
		place.remove();
		main.append(...next.childNodes);
		main.classList.remove("old");
	};
	const refresh = async () => {
		if (asking || document.hidden || !getSelection().isCollapsed) return;
		asking = true;
		try {
			const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(8000) });
			if (!answer.ok) throw new Error(answer.status);
			const next = new DOMParser().parseFromString(await answer.text(), "text/html");
			show(document.querySelector("main"), next.querySelector("main"));
			document.title = next.title;
		} catch {
			document.querySelector("main").classList.add("old");
		}
		asking = false;
	};
	setInterval(refresh, 5000);
	document.addEventListener("visibilitychange", refresh);
	if (!forms) return;

	lookup.device.value = document.querySelector("#about")?.dataset.device ?? ""; // an alert leads here
	forms.addEventListener("input", ({ target }) => {
		if (target.name === "token") lookup.token.value = silence.token.value = target.value;
	});

	// ask sends a request with the form's token, and shows what done makes of the answer, or what went wrong.
	const ask = async (form, method, path, body, done) => {
		const answer = form.querySelector(".answer"), details = answer.querySelector("details");
		const visible = (s) => s.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Co}\u2028\u2029]/gu, "\uFFFD"); // text that changes direction
		const tell = (text, all) => {
			answer.querySelector("p").textContent = visible(text);
			if (details) details.hidden = !all;
			if (all && details) answer.querySelector("pre").textContent = visible(JSON.stringify(all, null, 2));
			answer.hidden = false;
		};
		try {
			const response = await fetch(path, {
				method, body, cache: "no-store", headers: { Authorization: "Bearer " + form.token.value }, signal: AbortSignal.timeout(8000),
			});
			const found = await response.json();
			if (response.ok) tell(done(found), found);
			else tell(response.status === 401 ? "This is not the value of HTTP_ADMIN_TOKEN." : found.detail);
		} catch {
			tell("The replica did not answer: try again.");
		}
	};
	lookup.addEventListener("submit", (event) => {
		event.preventDefault();
		const [device, ...sensor] = lookup.device.value.split("/"); // the first slash parts them, as in commands
		const of = sensor.length ? "&sensor=" + encodeURIComponent(sensor.join("/")) : "";
		ask(lookup, "GET", "/devices?id=" + encodeURIComponent(device) + of, undefined, (found) => found.why);
	});
	silence.addEventListener("submit", async (event) => {
		event.preventDefault();
		const { token, ...fields } = Object.fromEntries(new FormData(silence));
		await ask(silence, "PUT", "/silences", JSON.stringify(fields), ({ text }) =>
			"Silenced " + text + ". Other replicas know it within 15 s.");
		refresh();
	});
	document.addEventListener("click", async ({ target }) => {
		if (!target.dataset.end || !silence.who.reportValidity() || !silence.token.reportValidity()) return;
		await ask(silence, "DELETE", "/silences/" + target.dataset.end + "?who=" + encodeURIComponent(silence.who.value), undefined, () => "Ended. Other replicas know it within 15 s.");
		refresh();
	});
})();
