// Replaces the page's content every 5 s, but for the form that looks up a device, unless the page
// is hidden or text is selected.
(() => {
	let asking = false;
	const form = document.querySelector("#lookup");
	const show = (main, next) => {
		const place = next.querySelector("#lookup");
		if (!form || !place) return main.replaceWith(next);
		for (const old of [...main.childNodes]) if (old !== form) old.remove();
		form.before(...[...next.childNodes].slice(0, [...next.childNodes].indexOf(place)));
		place.remove();
		main.append(...next.childNodes);
		main.classList.remove("old");
	};
	const refresh = async () => {
		if (asking || document.hidden || !getSelection().isCollapsed) return;
		asking = true;
		try {
			const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(8000) });
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

	if (form) form.device.value = new URLSearchParams(location.search).get("device") ?? ""; // an alert leads here

	form?.addEventListener("submit", async (event) => {
		event.preventDefault();
		const answer = form.querySelector(".answer"), details = answer.querySelector("details");
		const tell = (text, all) => {
			answer.querySelector("p").textContent = text;
			answer.querySelector("pre").textContent = all ? JSON.stringify(all, null, 2) : "";
			details.hidden = !all;
			answer.hidden = false;
		};
		try {
			const response = await fetch("/devices/" + encodeURIComponent(form.device.value), {
				cache: "no-store", headers: { Authorization: "Bearer " + form.token.value }, signal: AbortSignal.timeout(8000),
			});
			const found = await response.json();
			if (response.ok) tell(found.why + ".", found);
			else tell(response.status === 401 ? "This is not the value of HTTP_ADMIN_TOKEN." : found.detail);
		} catch {
			tell("The replica did not answer: try again.");
		}
	});
})();
