//! The pictures of the page in `docs/page`: `tests/run pictures` writes them.

use std::{fs, io::Cursor, path::PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::{
    browser::{Page, Window, with_browser},
    console::with_console,
};

/// How long each frame of the animation is shown, in seconds: the sentences have to be read.
const FRAME_SECONDS: [u16; 4] = [3, 5, 5, 7];
/// The largest size of the animation, in bytes.
const MAX_ANIMATION: usize = 600 * 1024;

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/page"));
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

#[tokio::test]
async fn the_end_of_the_story_lost_response() {
    for (dark, name) in [(false, "light.png"), (true, "dark.png")] {
        with_browser(Window { dark, ..Window::DESKTOP }, async |page| {
            page.open().await;
            page.play("lost").await;
            let clip = stage(page).await;
            fs::write(file(name), screenshot(page, &clip).await).unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn the_story_lost_response_as_an_animation() {
    with_browser(Window::DESKTOP, async |page| {
        page.open().await;
        page.play("lost").await;
        let clip = stage(page).await;
        page.open().await;
        page.front.call("start", json!({ "visit": page.visit })).await;
        page.until("document.documentElement.dataset.run === '2'").await;
        let mut frames = vec![screenshot(page, &clip).await];
        page.driver.click("#pace option[value=step]").await;
        page.driver.click("[data-story=lost]").await;
        for step in ["Step 1 of 2", "Step 2 of 2"] {
            page.until(&format!("document.getElementById('step').textContent === '{step}'")).await;
            page.until("!document.getElementById('next').hidden").await;
            frames.push(screenshot(page, &clip).await);
            page.driver.click("#next").await;
        }
        page.await_end("lost").await;
        frames.push(screenshot(page, &clip).await);
        let animation = animate(&frames);
        assert!(animation.len() <= MAX_ANIMATION, "{} bytes", animation.len());
        fs::write(file("lost-response.png"), animation).unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_held_refund_in_the_console() {
    with_console(Window { width: 900, ..Window::DESKTOP }, async |page| {
        let clip = until_end_of(page, "main section").await;
        guide_picture("console_overview", &screenshot(page, &clip).await);
        page.driver.click("tbody a").await;
        page.until("document.querySelector('.story')").await;
        page.driver.click(".decide summary").await;
        let clip = until_end_of(page, ".decide").await;
        guide_picture("console_record", &screenshot(page, &clip).await);
    })
    .await;
}

/// Writes a picture of the guide, which the documentation contains: so it has to be small.
fn guide_picture(name: &str, picture: &[u8]) {
    let path = format!(
        "{}/../../idempotent-actix/src/guide/pictures/{name}.png",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::write(path, animate(&[picture.to_vec()])).unwrap();
}

/// The part of the page that ends with this element.
async fn until_end_of(page: &Page, selector: &str) -> Value {
    page.get("(scrollTo(0, 0), 1)").await;
    let end = format!("document.querySelector('{selector}').getBoundingClientRect().bottom");
    page.get(&format!("{{ x: 0, y: 0, width: innerWidth, height: {end} + 12, scale: 1 }}")).await
}

/// The part of the page from the narration to the books of both sides.
async fn stage(page: &Page) -> Value {
    page.get("(scrollTo(0, 0), 1)").await;
    let place =
        |selector: &str| format!("document.querySelector('{selector}').getBoundingClientRect()");
    let (first, last) = (place("#narration"), place("#stage .pair"));
    page.get(&format!(
        "{{ x: 0, y: {first}.top + scrollY - 12, width: innerWidth, \
            height: {last}.bottom - {first}.top + 24, scale: 1 }}"
    ))
    .await
}

/// A screenshot without animations and without the caret, which would differ from run to run.
async fn screenshot(page: &Page, clip: &Value) -> Vec<u8> {
    page.get("(scrollTo(0, 0), document.activeElement.blur(), 1)").await;
    page.until("document.getAnimations().every((one) => one.playState === 'finished')").await;
    let parameters = json!({ "format": "png", "clip": clip, "captureBeyondViewport": true });
    let shot = page.driver.devtools("Page.captureScreenshot", parameters).await;
    BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
}

/// A picture: its width, its height, and three bytes for each pixel.
struct Pixels(u32, u32, Vec<u8>);

fn decode(picture: &[u8]) -> Pixels {
    let mut reader = png::Decoder::new(Cursor::new(picture)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    bytes.truncate(info.buffer_size());
    if info.color_type == png::ColorType::Rgba {
        bytes = bytes.chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect();
    } else {
        assert_eq!(info.color_type, png::ColorType::Rgb);
    }
    Pixels(info.width, info.height, bytes)
}

/// An animated PNG. Each frame after the first one has only the rows that have changed.
fn animate(frames: &[Vec<u8>]) -> Vec<u8> {
    let frames: Vec<_> = frames.iter().map(|frame| decode(frame)).collect();
    let Pixels(width, height, first) = &frames[0];
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, *width, *height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    encoder.set_animated(u32::try_from(frames.len()).unwrap(), 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    let row = 3 * usize::try_from(*width).unwrap();
    let mut before = first;
    for (place, (Pixels(w, h, pixels), seconds)) in frames.iter().zip(FRAME_SECONDS).enumerate() {
        assert_eq!((w, h), (width, height), "all frames have the same size");
        let differs =
            |at: &usize| place == 0 || pixels[at * row..][..row] != before[at * row..][..row];
        let rows = pixels.len() / row;
        let top = (0..rows).find(differs).unwrap_or(0);
        let bottom = (0..rows).rev().find(differs).unwrap_or(0) + 1;
        let (top_row, count) = (u32::try_from(top).unwrap(), u32::try_from(bottom - top).unwrap());
        if place > 0 {
            writer.set_frame_dimension(*width, count).unwrap();
            writer.set_frame_position(0, top_row).unwrap();
        }
        writer.set_frame_delay(seconds, 1).unwrap();
        writer.write_image_data(&pixels[top * row..bottom * row]).unwrap();
        before = pixels;
    }
    writer.finish().unwrap();
    file
}
