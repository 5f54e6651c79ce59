//! An upload stores one file.

use std::{fs, path::PathBuf, sync::RwLock};

use actix_web::{App, test::TestRequest, web::Data};
use awc::Client;
use idempotent_test::TestService;
use rustypaste::{
    config::Config,
    random::{RandomURLConfig, RandomURLType},
    server::configure_routes,
};

const UPLOAD: &str = "--x\r\n\
    Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n\
    hello\r\n\
    --x--\r\n";

#[actix_web::test]
async fn an_upload_stores_one_file() {
    let directory = PathBuf::from(std::env::var("UPLOADS").unwrap());
    let mut config = Config::default();
    config.server.upload_path = directory.clone();
    config.paste.random_url = Some(RandomURLConfig {
        type_: RandomURLType::Alphanumeric,
        length: Some(12),
        ..RandomURLConfig::default()
    });
    let service = TestService::new(move |idempotency| {
        App::new()
            .app_data(idempotency)
            .app_data(Data::new(RwLock::new(config.clone())))
            .app_data(Data::new(Client::default()))
            .configure(configure_routes)
    });
    let upload = TestRequest::post()
        .uri("/")
        .insert_header(("Content-Type", "multipart/form-data; boundary=x"))
        .set_payload(UPLOAD);
    let files = async move || [("files", fs::read_dir(&directory).unwrap().count())];
    match service.prove(upload).observing(files).await {
        Ok(proved) => println!("RESULT {proved}"),
        Err(unproved) => println!("RESULT {unproved}"),
    }
}
